-- Hear of rows that other processes commit; see outbox.Channel. The server may not end this session because it is idle.
SET idle_session_timeout = 0;
LISTEN "{{channel}}"
