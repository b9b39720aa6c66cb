-- How many rows the history has of a day. @day
-- Plan: an index-only scan of the one partition.
SELECT count(*)
  FROM {{table}}_history
 WHERE published_at >= @day::text::date::timestamp AT TIME ZONE 'UTC' AND published_at < (@day::text::date + 1)::timestamp AT TIME ZONE 'UTC'
