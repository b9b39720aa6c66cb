-- The shard of a key in the class of normal priority. @key
ASCII(UNHEX(LEFT(SHA2(@key, 256), 2))) & 3
