-- What a table consists of: rows of object, property and value.
SELECT 'column ' || c.name, p.key, p.value
  FROM pragma_table_xinfo('{{name}}'{{in}}) AS c
     , json_each(json_object('type', upper(c.type), 'nullable', iif(c."notnull", 'no', 'yes'), 'primary key', iif(c.pk, 'part ' || c.pk, NULL))) AS p
 UNION ALL
SELECT 'index ' || i.name, p.key, p.value
  FROM pragma_index_list('{{name}}'{{in}}) AS i
     , json_each(json_object('unique', iif(i."unique", 'yes', 'no'),
                             'columns', (SELECT group_concat(name, ', ') FROM (SELECT name FROM pragma_index_info(i.name{{in}}) ORDER BY seqno)))) AS p
