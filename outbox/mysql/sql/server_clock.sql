-- What is the server's time, in seconds?
SELECT UNIX_TIMESTAMP()
