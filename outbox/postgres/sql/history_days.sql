-- Make the partitions of the history for the days ahead. For how many seconds from now there are some.
SELECT extract(epoch FROM {{table}}_history_days() - statement_timestamp())::bigint
