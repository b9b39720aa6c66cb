-- Make the partitions of the days ahead. For how long they last, in microseconds.
SELECT (extract(epoch FROM {{table}}_history_days() - statement_timestamp()) * 1000000)::bigint
