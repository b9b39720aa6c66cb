-- The steps that were applied.
SELECT version FROM {{table}}_migrations ORDER BY version
