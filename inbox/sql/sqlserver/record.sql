-- Record a step that was applied. @p1 version, @p2 name.
INSERT INTO {{table}}_migrations (version, name) VALUES (@p1, @p2)
