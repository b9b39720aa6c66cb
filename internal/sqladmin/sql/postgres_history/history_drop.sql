-- Drop what was taken out of the history. Why some of it is still there, or ''.
SELECT {{table}}_history_drop()
