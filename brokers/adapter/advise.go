package adapter

import "github.com/gorm-fanout/fanout/internal/failure"

// Advise appends to an error what the one who runs the broker can do about it: "check the password".
// Logs and the console group failures by their remedy. It returns err itself where it is nil or remedy
// is empty.
func Advise(err error, remedy string) error { return failure.Advise(err, remedy) }
