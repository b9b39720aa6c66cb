-- Bring back what is deferred before a block: an owner that was stopped can abandon a row while an earlier one of its key, which another
-- transaction took over, is deferred. That has nothing to wait for but its own time. @broker, @key, @shard, @block
-- Plan: a range scan of {{name}}_held.
{{giving way}} UPDATE {{table}} FORCE INDEX ({{name}}_held)
   SET deferred = FALSE
 WHERE held_key = UNHEX(SHA2(@key, 256)) AND target_broker = @broker AND shard = @shard AND id < @block
