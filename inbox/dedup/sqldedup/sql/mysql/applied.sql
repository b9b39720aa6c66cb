-- The steps that were applied. The comment stands first so that no plugin takes this for a query that a replica may answer.
SELECT version FROM {{table}}_migrations
