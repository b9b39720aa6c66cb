-- Where find.sql looks when message ids are named. Named parameter: messages (JSON). Plan: the rows by the unique index.
        SELECT id, target_broker, status, type, ordering_key, last_error, created_at, locked_until, available_at
          FROM {{table}}
         WHERE message_id IN (SELECT value FROM json_each(:messages))
