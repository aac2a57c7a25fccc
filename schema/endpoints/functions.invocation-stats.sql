-- id: 8f2c1d64-7b0e-4c55-9a6f-2d1f0b6f3a71
-- name: functions.invocation-stats
-- language: sql
-- max_rows: 1000
-- cache_seconds: 900
-- warming_seconds: 300
-- sandboxed: false
-- parameter: project string required
-- parameter: function_id string
-- parameter: interval string

-- Statistics of function invocations by time bucket (specification 2.2 and 4.1).
-- A bucket's row with function '' holds all functions of the project.
SELECT
    bucket AS timestamp,
    milliseconds(min_time) AS min_execution_time,
    milliseconds(max_time) AS max_execution_time,
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
