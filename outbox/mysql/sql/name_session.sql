-- Note in the session of which server it is, with the number of the session: a proxy may set variables again in another one. (The name is in
-- capitals, since others are parameters here; the server makes no difference.) @server
SET @FANOUT_SERVER = CONCAT(@server, '/', CONNECTION_ID())
