-- Say which rows fetch.sql is to read, where the claim was another round trip.
-- $1 first id, $2 last id
SELECT set_config('fanout.first', $1, false), set_config('fanout.last', $2, false)
