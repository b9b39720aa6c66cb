package failure

import (
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// The classes of errors about a connection, whose texts depend on the moment at which it broke.
const (
	ClassConnection  = "connection"  // refused, reset, or the server shuts down or starts
	ClassNoAnswer    = "no answer"   // within the time that was given
	ClassName        = "host name"   // it is not known
	ClassCertificate = "certificate" // it is not trusted
)

// advised is an error with its remedy.
type advised struct {
	error
	remedy string
}

func (a *advised) Unwrap() error { return a.error }
func (a *advised) Error() string { return a.error.Error() + ": " + a.remedy }

// Advise appends what can be done about an error, which decides its [Class]; "" appends nothing.
func Advise(err error, remedy string) error {
	if err == nil || remedy == "" {
		return err
	}
	return &advised{err, remedy}
}

// Split parts an error into what is wrong and the remedy of [Advise], for logs that have it in front.
// Without one the remedy is "".
func Split(err error) (cause, remedy string) {
	if err == nil {
		return "", ""
	}
	var known *advised
	cause = err.Error()
	if errors.As(err, &known) {
		remedy = known.remedy
		cause = strings.TrimSuffix(cause, ": "+remedy)
	}
	return cause, remedy
}

// Class tells causes apart by what can be done about them: by the remedy of [Advise] where an error
// has one; else by the database's own code; else by what broke a connection. Of any other error it
// is the text without what varies: numbers, addresses and names in quotes.
func Class(err error) string {
	var (
		known     *advised
		postgres  interface{ SQLState() string }
		sqlServer interface{ SQLErrorNumber() int32 }
	)
	switch {
	case err == nil:
		return ""
	case errors.As(err, &known):
		return constant(known.remedy)
	case errors.As(err, &postgres):
		if state := postgres.SQLState(); !strings.HasPrefix(state, "08") && !strings.HasPrefix(state, "57P") { // connection, shutdown and start
			return state
		}
		return ClassConnection
	case errors.As(err, &sqlServer):
		return strconv.Itoa(int(sqlServer.SQLErrorNumber()))
	}
	if class := network(err); class != "" {
		return class
	}
	return constant(err.Error())
}

// broken are the ways in which a connection ends.
var broken = []error{
	io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, driver.ErrBadConn, sql.ErrConnDone,
	syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
}

// network is the class of an error about a connection, "" of others.
func network(err error) string {
	var (
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
		call        net.Error
	)
	switch {
	case errors.As(err, &name):
		return ClassName
	case errors.As(err, &certificate):
		return ClassCertificate
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &call) && call.Timeout():
		return ClassNoAnswer
	case errors.As(err, new(*net.OpError)):
		return ClassConnection
	}
	for _, end := range broken {
		if errors.Is(err, end) {
			return ClassConnection
		}
	}
	return ""
}

// varies is what differs between two texts about the same: a name in quotes, and a word with a
// digit, such as an address, an id or a number.
var varies = regexp.MustCompile(`"[^"\s]*"|'[^'\s]*'|\S*[0-9]\S*`)

func constant(text string) string { return varies.ReplaceAllLiteralString(text, "#") }

// PoolClosed reports whether the application has closed its connection pool, as it does when it ends.
// database/sql does not export that error, and that of pgx is of a package behind it.
func PoolClosed(err error) bool {
	text := err.Error()
	return strings.HasSuffix(text, "sql: database is closed") || strings.HasSuffix(text, ": closed pool") || text == "closed pool"
}
