-- Has a shard work? For each of them; shard -1 alone says that the broker is paused. A shard that is not valid has another version than that for
-- which its low-water mark is, or this session is not known to be one of the mark's server.
-- Without marks, what stands between the words marks and end is left out.
-- @broker, @busy: the shards to leave out, a bit each; {{list_0}} and so on: rows below the marks; @floor_0 and so on: the marks, or a number below all ids; @version_0 and so
-- on: their versions, or -1 for no mark; @server: see name_session.sql
-- Plan: per shard, one range scan of {{name}}_queue that stops at the first ready row; one probe of {{name}}_scheduled and a few of {{name}}_blocks_wake; the listed rows by
-- primary key; the shard by primary key.
SELECT shard, valid
  FROM (SELECT -1 AS shard, EXISTS (SELECT 1 FROM {{table}}_pauses WHERE target_broker = @broker) AS work, TRUE AS valid
         UNION ALL
{{each shard part_ready}}) AS shards
 WHERE work OR NOT valid
 ORDER BY shard
