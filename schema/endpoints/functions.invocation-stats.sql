-- id: 8f2c1d64-7b0e-4c55-9a6f-2d1f0b6f3a71
-- name: functions.invocation-stats
-- about: Statistics of function invocations by time bucket.
-- language: sql
-- max_rows: 1000
-- cache_seconds: 900
-- warming_seconds: 300
-- sandboxed: false
-- parameter: project string required -- The project's reference.
-- parameter: function_id string -- Only this function; all of the project's without it.
-- parameter: interval string -- 5min, 15min, 1hr, 1day or 7day; anything else is 1day.
-- column: timestamp integer -- The bucket's start, in µs since the epoch.
-- column: min_execution_time number or null -- In ms.
-- column: max_execution_time number or null -- In ms.
-- column: avg_execution_time number or null -- In ms.
-- column: p95_execution_time integer or null -- In ms.
-- column: p99_execution_time integer or null -- In ms.
-- column: count integer -- The invocations.
-- column: error_count integer -- Those whose status is 400 or more.

-- Statistics of function invocations by time bucket (specification 2.2 and 4.1).
-- A bucket's row with function '' holds all functions of the project. Whole milliseconds are integers.
SELECT
    bucket AS timestamp,
    iif(min_time % 1000 = 0, min_time / 1000, min_time / 1000.0) AS min_execution_time,
    iif(max_time % 1000 = 0, max_time / 1000, max_time / 1000.0) AS max_execution_time,
    sum_time / (timed_count * 1000.0) AS avg_execution_time,
    percentile(histogram, 95, min_time, max_time) AS p95_execution_time,
    percentile(histogram, 99, min_time, max_time) AS p99_execution_time,
    count,
    error_count
FROM invocations
WHERE project = @project
    AND function = coalesce(@function_id, '')
    AND grain = invocation_grain(@interval)
    AND bucket >= invocation_window_start(@interval, @now)
ORDER BY bucket
