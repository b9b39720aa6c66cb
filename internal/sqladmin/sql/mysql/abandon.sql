-- Abandon rows in the name of an operator. Runs under the shards' locks, which pick.sql has added to.
-- @ids (a JSON list), @error what last_error becomes, up to the time and the number of attempts, which stand last
-- Plan: the rows by primary key.
{{giving way}} UPDATE {{ids @ids}} AS picked
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = picked.item
   SET m.status       = 'abandoned'
     , m.finished_at  = UTC_TIMESTAMP(6)
     , m.locked_until = NULL
     , m.locked_by    = NULL
     , m.lock_token   = NULL
     , m.isolated     = FALSE
     , m.deferred     = FALSE
     , m.available_at = NULL
     , m.last_error   = CONCAT(@error, '"', DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%dT%H:%i:%s.%f'), 'Z","attempt":', m.attempts, '}')
