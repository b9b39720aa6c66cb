SELECT pg_advisory_xact_lock('app.outbox_messages'::regclass::oid::bigint << 32 | slot)
  FROM (SELECT listed::bigint AS slot
          FROM unnest(string_to_array($1, ',')) AS listed
         ORDER BY slot) AS sorted
