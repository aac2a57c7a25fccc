-- id: 3a9d5e10-46c8-4e0b-8d53-6c1b7e92f0a4
-- name: logs.all
-- about: The newest edge request log entries of a project, newest first.
-- language: sql
-- max_rows: 1000
-- cache_seconds: none
-- warming_seconds: none
-- sandboxed: false
-- result: array
-- parameter: project string required -- The project's reference.
-- parameter: project_tier string -- FREE, PRO, PAYG or ENTERPRISE: how far back; anything else is FREE.
-- parameter: iso_timestamp_start timestamp -- Entries later than this.
-- parameter: iso_timestamp_end timestamp -- Entries up to this.
-- column: id string
-- column: timestamp integer -- In µs since the epoch.
-- column: event_message string
-- column: metadata json -- As the producer sent it.

-- The newest edge request log entries of a project (specification 2.3 and 4.2): newer than both the start and the
-- tier's retention, up to the end, at most 100. Ties are ordered by id, then by the record's bytes, both descending.
SELECT entries, count
FROM recent_entries_array(
    @project,
    max(coalesce(@iso_timestamp_start, @now - tier_retention(@project_tier)), @now - tier_retention(@project_tier)),
    @iso_timestamp_end,
    100
)
