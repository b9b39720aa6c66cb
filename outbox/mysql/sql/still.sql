-- Read the version of a shard; NULL where this session is not known to be one of the server that is meant. @broker, @shard; @server: see
-- name_session.sql
SELECT CASE WHEN {{include part_is_server}} THEN (SELECT version FROM {{table}}_shards WHERE target_broker = @broker AND shard = @shard % 4) END
