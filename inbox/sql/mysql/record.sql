-- Record a step that was applied. ?1 version, ?2 name.
INSERT INTO {{table}}_migrations (version, name) VALUES (?1, ?2)
