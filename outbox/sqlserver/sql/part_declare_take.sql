-- What part_take.sql takes, and what it took.
DECLARE @chosen TABLE (id bigint NOT NULL PRIMARY KEY);
DECLARE @claimed TABLE (id bigint NOT NULL PRIMARY KEY);
