//! Networks of addresses, as settings name them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use thiserror::Error;

/// One address, or all that share its first bits: `10.0.0.7`, `10.0.0.0/8`, `fd00::/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

/// A text that names no network.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is neither an address such as 10.0.0.7 nor a network such as 10.0.0.0/8")]
pub struct NetworkError(String);

impl Network {
    /// The addresses of this machine itself.
    pub const LOOPBACK: [Self; 2] = [
        Self { address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), prefix_bits: 8 },
        Self { address: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix_bits: 128 },
    ];

    /// Whether `address` lies in it. An IPv4 address in IPv6 clothes counts as what it is.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differ = u32::from(own) ^ u32::from(other);
                u32::from(self.prefix_bits) <= differ.leading_zeros()
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differ = u128::from(own) ^ u128::from(other);
                u32::from(self.prefix_bits) <= differ.leading_zeros()
            }
            _ => false,
        }
    }
}

impl Network {
    /// Whether it is everybody.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.prefix_bits == 0
    }

    /// Whether it has so many addresses that they hardly are one operator's machines: more than the largest private
    /// network, `10.0.0.0/8`, or than what one site gets of IPv6, 48 bits; private IPv6, `fc00::/7`, is narrow enough.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        match self.address {
            IpAddr::V4(_) => self.prefix_bits < 8,
            IpAddr::V6(address) => {
                self.prefix_bits < 48 && (self.prefix_bits < 7 || address.octets()[0] & 0xfe != 0xfc)
            }
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let wrong = || NetworkError(text.to_owned());
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.trim().parse().map_err(|_| wrong())?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = bits.map_or(Ok(bits_max), |bits| bits.trim().parse().map_err(|_| wrong()))?;
        if prefix_bits > bits_max { Err(wrong()) } else { Ok(Self { address, prefix_bits }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        network.parse::<Network>().expect(network).contains(address.parse().expect(address))
    }

    #[test]
    fn networks_that_are_nobody_in_particular_are_known() {
        for (network, wide, everything) in [
            ("0.0.0.0/0", true, true),
            ("::/0", true, true),
            ("0.0.0.0/1", true, false),
            ("10.0.0.0/8", false, false),
            ("192.0.2.1", false, false),
            ("2000::/3", true, false),
            ("2001:db8::/48", false, false),
            ("fd00::/8", false, false),
            ("fe00::/8", true, false),
        ] {
            let parsed = network.parse::<Network>().expect(network);
            assert_eq!((parsed.is_wide(), parsed.is_everything()), (wide, everything), "{network}");
        }
    }

    #[test]
    fn a_network_holds_the_addresses_that_share_its_first_bits() {
        for (network, address, inside) in [
            ("10.0.0.0/8", "10.255.1.2", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("10.0.0.0/8", "::ffff:10.1.1.1", true),
            ("fd00::/8", "fdab::1", true),
            ("fd00::/8", "fe80::1", false),
            ("::/0", "10.0.0.1", false),
            ("10.0.0.0/9", "10.128.0.1", false),
        ] {
            assert_eq!(contains(network, address), inside, "{network} {address}");
        }
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "proxy.example.com", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong:?}");
        }
    }
}
