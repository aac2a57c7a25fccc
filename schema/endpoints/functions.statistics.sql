-- name: functions.statistics
-- about: Statistics of each function of a project over one interval.
-- language: sql
-- max_rows: 1000
-- cache_seconds: 900
-- warming_seconds: 300
-- sandboxed: false
-- parameter: project string required -- The project's reference.
-- parameter: function_id string -- Only this function.
-- parameter: interval word: 5min 15min 1hr 1day 7day = 1day -- How far back.
-- column: function_id string or null -- null: all of the project's together, those without a function too.
-- column: count integer -- The invocations.
-- column: error_count integer -- Those whose status is 400 or more.
-- column: count_1xx integer -- Those with a status from 100 to 199.
-- column: count_2xx integer
-- column: count_3xx integer
-- column: count_4xx integer
-- column: count_5xx integer
-- column: min_execution_time number or null -- In ms.
-- column: max_execution_time number or null -- In ms.
-- column: avg_execution_time number or null -- In ms.
-- column: p50_execution_time integer or null -- In ms.
-- column: p75_execution_time integer or null -- In ms.
-- column: p90_execution_time integer or null -- In ms.
-- column: p95_execution_time integer or null -- In ms.
-- column: p99_execution_time integer or null -- In ms.

-- The same invocations as functions.invocation-stats counts for the interval: the buckets from its window's start on.
-- The functions are found by a step in the index each, so that the buckets of other grains are not read.
WITH RECURSIVE found(function) AS (
    SELECT min(function) FROM invocations WHERE project = @project
    UNION ALL
    SELECT (SELECT min(function) FROM invocations WHERE project = @project AND function > found.function)
    FROM found WHERE found.function IS NOT NULL
),
merged AS (
    SELECT
        i.function,
        sum(count) AS count, sum(error_count) AS error_count,
        sum(count_1xx) AS count_1xx, sum(count_2xx) AS count_2xx, sum(count_3xx) AS count_3xx,
        sum(count_4xx) AS count_4xx, sum(count_5xx) AS count_5xx,
        min(min_time) AS min_time, max(max_time) AS max_time,
        sum(sum_time) / (sum(timed_count) * 1000.0) AS avg_time,
        merged_histogram(histogram) AS histogram
    FROM found
    CROSS JOIN invocations AS i ON i.project = @project AND i.function = found.function
        AND i.grain = invocation_grain(@interval)
        AND i.bucket >= invocation_window_start(@interval, @now)
    WHERE found.function = coalesce(@function_id, found.function)
    GROUP BY i.function
)
SELECT
    nullif(function, '') AS function_id,
    count, error_count, count_1xx, count_2xx, count_3xx, count_4xx, count_5xx,
    milliseconds(min_time) AS min_execution_time,
    milliseconds(max_time) AS max_execution_time,
    avg_time AS avg_execution_time,
    percentile(histogram, 50, min_time, max_time) AS p50_execution_time,
    percentile(histogram, 75, min_time, max_time) AS p75_execution_time,
    percentile(histogram, 90, min_time, max_time) AS p90_execution_time,
    percentile(histogram, 95, min_time, max_time) AS p95_execution_time,
    percentile(histogram, 99, min_time, max_time) AS p99_execution_time
FROM merged
ORDER BY function != '', count DESC, function
