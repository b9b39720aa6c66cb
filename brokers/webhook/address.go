package webhook

import (
	"fmt"
	"net/netip"
	"syscall"
)

// addressError is the error of an endpoint that is not on the public internet.
type addressError struct{ address netip.Addr }

func (e addressError) Error() string {
	return fmt.Sprintf("the address %s is not public; if it is meant, allow private networks (allow_private_networks)", e.address)
}

// notPublic are networks that netip does not name, from the registries of special-purpose addresses
// (https://www.iana.org/assignments/iana-ipv4-special-registry, .../iana-ipv6-special-registry).
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	// In no registry: what a virtual machine in Azure asks for its own settings and secrets
	// (https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16).
	netip.MustParsePrefix("168.63.129.16/32"),
	// Of IPv6, what lies outside 2000::/3, and in it tunnels, which lead to IPv4 addresses, and documentation.
	netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("3fff::/20"),
}

var globalIPv6 = netip.MustParsePrefix("2000::/3")

// isPublic reports whether an address is one of the public internet.
func isPublic(address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	if !address.IsGlobalUnicast() || address.IsPrivate() || address.Is6() && !globalIPv6.Contains(address) {
		return false
	}
	for _, network := range notPublic {
		if network.Contains(address) {
			return false
		}
	}
	return true
}

// onlyPublic is a control function of net.Dialer: it sees the address itself, behind all names.
func onlyPublic(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address: %w", err)
	}
	if !isPublic(to.Addr()) {
		return addressError{to.Addr()}
	}
	return nil
}
