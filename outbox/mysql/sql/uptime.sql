-- For how many seconds has the server been running?
SHOW GLOBAL STATUS LIKE 'Uptime'
