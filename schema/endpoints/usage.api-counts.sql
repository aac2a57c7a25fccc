-- id: c47b82f9-0d31-4f6a-b2a8-95e3d06c7b18
-- name: usage.api-counts
-- about: API requests by time bucket and family.
-- language: sql
-- max_rows: 1000
-- cache_seconds: 900
-- warming_seconds: 300
-- sandboxed: false
-- result: array
-- parameter: project pattern required -- An RE2 pattern that is searched in the request's URL.
-- parameter: interval word required: minutely hourly daily 15min 30min 1hr 3hr 1day 3day 7day
-- column: timestamp string -- The bucket's start, UTC.
-- column: total_rest_requests integer -- Requests whose path contains /rest.
-- column: total_storage_requests integer -- Requests whose path contains /storage.
-- column: total_auth_requests integer -- Requests whose path contains /auth.
-- column: total_realtime_requests integer -- Requests whose path contains /realtime.

-- API requests by time bucket and family (specification 2.4 and 4.3): those whose URL the pattern matches, from the
-- window's exact start on. A path with several of the texts counts in each.
SELECT counts, count
FROM request_counts_array(@project, @now - usage_span(@interval), usage_grain(@interval))
