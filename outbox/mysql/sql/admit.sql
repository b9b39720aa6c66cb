-- Admit scheduled rows whose time has come. @ids (a JSON list) From now on a row has waited since then: that is its lag. A time of the year 0 is none.
-- Plan: the rows by primary key.
{{giving way}} UPDATE {{ids @ids}} AS listed
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = listed.item
   SET m.locked_until = CASE WHEN m.available_at > '1000-01-01' THEN m.available_at END
     , m.available_at = NULL
     , m.deferred     = FALSE
 WHERE m.available_at <= UTC_TIMESTAMP(6)
