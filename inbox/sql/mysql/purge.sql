-- Remove rows that lock_old.sql has locked. ?1 their keys as a JSON array.
-- Plan: one lookup in the primary key for each row.
DELETE m
  FROM {{keys}}
