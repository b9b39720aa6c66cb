-- WITH words AS (
WITH first AS MATERIALIZED (
    SELECT 1
), second AS (
    SELECT 2
)
   , third AS (
 SELECT 3)
SELECT 4 AS fourth
