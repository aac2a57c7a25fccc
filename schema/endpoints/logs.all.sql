-- id: 3a9d5e10-46c8-4e0b-8d53-6c1b7e92f0a4
-- name: logs.all
-- language: sql
-- max_rows: 1000
-- cache_seconds: none
-- warming_seconds: none
-- sandboxed: false
-- parameter: project string required
-- parameter: project_tier string
-- parameter: iso_timestamp_start timestamp
-- parameter: iso_timestamp_end timestamp
-- json: metadata

-- The newest edge request log entries of a project (specification 2.3 and 4.2): newer than both the start and the
-- tier's retention, up to the end, at most 100. Ties are ordered by id, then by the record's bytes, both descending.
SELECT id, timestamp, event_message, metadata
FROM recent_entries(
    @project,
    max(coalesce(@iso_timestamp_start, @now - tier_retention(@project_tier)), @now - tier_retention(@project_tier)),
    @iso_timestamp_end,
    100
)
ORDER BY timestamp DESC, id DESC, record DESC
