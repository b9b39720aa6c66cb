-- Make the partitions of the days that are filled: {{days}} of them, up to yesterday.
DO $$
DECLARE
    day date;
BEGIN
    FOR day IN SELECT (now() AT TIME ZONE 'UTC')::date - n FROM generate_series(1, {{days}}) AS n LOOP
        EXECUTE format('CREATE TABLE IF NOT EXISTS {{table}}_day_%s PARTITION OF {{table}}_history FOR VALUES FROM (%L) TO (%L)',
                       to_char(day, 'YYYYMMDD'), day || ' 00:00:00+00', day + 1 || ' 00:00:00+00');
    END LOOP;
END
$$
