package adapter

import (
	"cmp"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// CheckURL reports what is wrong with the URL of a key, or with one of a list there: that it does not
// begin with one of the schemes ("amqps://"), or cannot be read.
func CheckURL(section Section, key string, text Secret, schemes ...string) {
	address := text.Reveal()
	known := false
	for _, scheme := range schemes {
		known = known || strings.HasPrefix(address, scheme)
	}
	if !known {
		last := len(schemes) - 1
		section.Rejectf(key, "must begin with %s", strings.Join(append(schemes[:max(last-1, 0):max(last-1, 0)], strings.Join(schemes[max(last-1, 0):], " or ")), ", "))
		return
	}
	u, err := url.Parse(address)
	if err == nil && u.Port() != "" {
		var n uint64
		if n, err = strconv.ParseUint(u.Port(), 10, 16); n == 0 {
			err = strconv.ErrRange
		}
	}
	if err != nil { // whose text would quote the password
		section.Rejectf(key, "cannot be read as a URL: check the port, and write special characters in the password as %%40 and the like")
	}
}

// ServerOf is the server of a URL for [Section.Place], whoever logs in and with whatever settings, and
// what is chosen there, by the URL's path or by a parameter, "" where no parameter chooses. port and
// inside are what holds where the URL says nothing. What cannot be read is its own place.
func ServerOf(text Secret, port, inside, parameter string) string {
	address := text.Reveal()
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" {
		return address
	}
	chosen := ""
	if parameter != "" {
		chosen = u.Query().Get(parameter)
	}
	if u.Scheme == "unix" {
		return u.Path + " " + cmp.Or(chosen, inside)
	}
	host := net.JoinHostPort(strings.ToLower(cmp.Or(u.Hostname(), "localhost")), cmp.Or(u.Port(), port))
	return host + " " + cmp.Or(chosen, strings.Trim(u.Path, "/"), inside)
}
