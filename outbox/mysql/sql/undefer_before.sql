-- Bring back what is deferred before a block: an owner that was stopped can abandon a row while an earlier one of its key, which another
-- transaction took over, is deferred. That has nothing to wait for but its own time. @ids (a JSON list) of blocks
-- Plan: the blocks by primary key, per block one range scan of {{name}}_held.
UPDATE {{ids @ids}} AS listed
 STRAIGHT_JOIN {{table}} AS g FORCE INDEX (PRIMARY) ON g.id = listed.item
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX ({{name}}_held)
    ON m.held_key = UNHEX(SHA2(g.ordering_key, 256)) AND m.target_broker = g.target_broker AND m.id < g.id
   SET m.deferred = FALSE
 WHERE m.deferred = TRUE
