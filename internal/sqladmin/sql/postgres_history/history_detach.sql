-- Take a day out of the history. @day
SELECT CASE WHEN {{table}}_history_detach(@day::text::date) THEN 1 ELSE 0 END
