-- What there is not of the history beside its tables.
SELECT what || ': missing'
  FROM (VALUES ('view {{table}}_all', to_regclass('{{table}}_all') IS NOT NULL)
             , ('function {{table}}_history_days', to_regprocedure('{{table}}_history_days()') IS NOT NULL)
             , ('function {{table}}_history_detach', to_regprocedure('{{table}}_history_detach(date)') IS NOT NULL)
             , ('function {{table}}_history_drop', to_regprocedure('{{table}}_history_drop()') IS NOT NULL)
             , ('function {{table}}_history_restore', to_regprocedure('{{table}}_history_restore(uuid[], text[])') IS NOT NULL)
             , ('trigger {{name}}_history_known on {{table}}'
               , EXISTS (SELECT FROM pg_trigger
                          WHERE tgrelid = to_regclass('{{table}}') AND tgname = lower('{{name}}_history_known') AND tgenabled IN ('O', 'A')
                            AND tgfoid = to_regprocedure('{{table}}_history_known()')))) AS wanted (what, there)
 WHERE NOT there AND to_regclass('{{table}}_history') IS NOT NULL -- of a missing table nothing more is said
