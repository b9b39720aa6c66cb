-- Take rows out of the way of claims, or bring them back. Named parameters: ids (JSON), parked (0 or 1).
UPDATE {{table}} SET parked = :parked WHERE id IN (SELECT value FROM json_each(:ids)) AND parked <> :parked
