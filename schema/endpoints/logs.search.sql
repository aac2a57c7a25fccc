-- name: logs.search
-- about: The entries of a project that pass filters, newest first, page by page.
-- language: sql
-- max_rows: 1000
-- cache_seconds: none
-- warming_seconds: none
-- sandboxed: false
-- parameter: project string required -- The project's reference.
-- parameter: project_tier string -- FREE, PRO, PAYG or ENTERPRISE: how far back; anything else is FREE.
-- parameter: iso_timestamp_start timestamp -- Entries later than this.
-- parameter: iso_timestamp_end timestamp -- Entries up to this.
-- parameter: min_status integer: 0..999 -- The least status of the response.
-- parameter: max_status integer: 0..999 -- The largest status of the response.
-- parameter: method string -- The request's method, in any case.
-- parameter: path string -- A text in the request's path as sent.
-- parameter: text string -- A text in the event message, in any case.
-- parameter: limit integer: 1..100 = 100 -- At most so many entries.
-- parameter: cursor cursor -- The `next` of the answer before; the other parameters stay the same.
-- column: id string
-- column: timestamp integer -- In µs since the epoch.
-- column: event_message string
-- column: metadata json -- As the producer sent it.
-- next: next

-- In the order of logs.all: timestamp, id and the record's bytes, all descending. A call looks for a second at most;
-- where there may be more, `next` stands beside the result. A page may hold less than `limit` entries, even none.
SELECT id, timestamp, event_message, metadata, next
FROM matching_entries(
    @project,
    max(coalesce(@iso_timestamp_start, @now - tier_retention(@project_tier)), @now - tier_retention(@project_tier)),
    @iso_timestamp_end,
    @cursor,
    @limit,
    @min_status,
    @max_status,
    @method,
    @path,
    @text
)
