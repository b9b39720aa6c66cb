-- Drop what was taken out of the history.
SELECT 1 FROM {{table}}_history_drop()
