-- The steps that were recorded.
SELECT version FROM {{table}}_migrations
