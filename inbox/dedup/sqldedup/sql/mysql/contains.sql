-- Whether there is an entry. Parameters: kind, consumer, token. The comment stands first so that no plugin takes this for a query that a replica
-- may answer: an answer that is late would be wrong.
-- Plan: one lookup in the primary key.
SELECT count(*)
  FROM {{table}}
 WHERE kind = @kind AND consumer = @consumer AND token = @token
