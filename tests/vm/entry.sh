#!/bin/sh
# The container's program: runs a small Linux guest in QEMU and is, seen from outside, what dockur/windows is.
#   USER_PORTS            more ports that user-mode networking forwards: "8765", "8765/tcp,9000/udp", commas only
#   NETWORK               slirp | passt | user (passt, else slirp) | Y or nothing (tap and DNAT, else user) | N
#   RAM_SIZE, CPU_CORES, DISK_SIZE
#   /oem                  what installation lays into the guest; with /storage only the first time, as Windows' does
#   /storage              the guest's disk
# 8006 is the viewer's, in the container. SIGTERM ends it.
set -eu
: "${NETWORK:=Y}" "${USER_PORTS:=}" "${RAM_SIZE:=256M}" "${CPU_CORES:=1}" "${DISK_SIZE:=16M}"
# busybox's shell takes its own ip before any in PATH
ip() { /usr/bin/ip "$@"; }
say() { echo "container: $*"; }

uplink=$(ip -4 -o addr show dev eth0 | sed -n 's/.*inet \([0-9.]*\)\/.*/\1/p' | head -n 1)
[ -n "$uplink" ] || { say 'eth0 has no address'; exit 26; }

# The guest has the container's own address, but for the lowest ones, which user-mode networking needs.
address() { if [ "${uplink##*.}" -lt "$1" ]; then echo "${uplink%.*}.$1"; else echo "$uplink"; fi; }

# What is forwarded: remote desktop and USER_PORTS, less what the container keeps for itself.
kept='53/tcp 53/udp 8006/tcp 5900/tcp 139/tcp 445/tcp'
forwards() {
  # blanks go before the list is split, so "8765 445" is the port 8765445
  for port in 3389/tcp 3389/udp $(echo "$USER_PORTS" | tr -d ' ' | tr ',' ' '); do
    case $port in */tcp | */udp) ;; *) port=$port/tcp ;; esac
    case " $kept " in *" $port "*) say "WARNING: port $port is the container's own" >&2; continue ;; esac
    echo "$port"
  done | sort -u
}

slirp() {
  mode=slirp guest=$(address 4)
  netdev="user,id=net0,ipv4=on,ipv6=off,net=${guest%.*}.0/24,host=${guest%.*}.1,dhcpstart=$guest"
  for port in $(forwards); do netdev="$netdev,hostfwd=${port#*/}::${port%/*}-$guest:${port%/*}"; done
}

passt_or_slirp() {
  mode=passt guest=$(address 2) tcp='' udp=''
  for port in $(forwards); do
    case $port in */udp) udp="$udp,${port%/*}" ;; *) tcp="$tcp,${port%/*}" ;; esac
  done
  if /usr/bin/passt -4 -q -a "$guest" -g "${guest%.*}.1" -n 255.255.255.0 -m 1500 -t "${tcp#,}" -u "${udp#,}" \
    --runas 0:0 -s /tmp/passt.socket -P /run/passt.pid -l /tmp/passt.log; then
    netdev='stream,id=net0,server=off,addr.type=unix,addr.path=/tmp/passt.socket'
  else
    say 'WARNING: passt failed'
    slirp
  fi
}

# A bridge with the guest on it, to which everything goes that the container does not keep; USER_PORTS says nothing.
nat() {
  mode=nat guest=172.30.$(echo "$uplink" | cut -d . -f 3).2
  net=${guest%.*}
  [ -c /dev/net/tun ] && [ "$(cat /proc/sys/net/ipv4/ip_forward)" = 1 ] || return 1
  ip link add dev bridge type bridge && ip addr add "$net.1/24" dev bridge && ip link set bridge up || return 1
  ip tuntap add dev tap mode tap && ip link set tap up promisc on && ip link set dev tap master bridge || return 1
  iptables -t nat -A POSTROUTING ! -o bridge -s "$net.0/24" -j MASQUERADE || return 1
  iptables -t nat -N guest || return 1
  for port in $kept; do iptables -t nat -A guest -p "${port#*/}" --dport "${port%/*}" -j RETURN || return 1; done
  iptables -t nat -A guest -j DNAT --to-destination "$guest" || return 1
  iptables -t nat -A PREROUTING ! -i bridge -m addrtype --dst-type LOCAL -j guest || return 1
  # a lease that stands needs no probing for the address, which takes two seconds
  : >/run/leases
  printf '%s\n' "start $guest" "end $guest" 'interface bridge' "option router $net.1" 'option subnet 255.255.255.0' \
    'lease_file /run/leases' "static_lease $mac $guest" >/run/udhcpd.conf
  udhcpd -S /run/udhcpd.conf || return 1
  netdev='tap,id=net0,ifname=tap,script=no,downscript=no'
}

mac=02:11:32:aa:bb:cc netdev='' mode=none guest=none
case $NETWORK in
  [Nn]) ;;
  slirp) slirp ;;
  passt | user*) passt_or_slirp ;;
  *) nat || { say 'WARNING: NAT failed'; passt_or_slirp; } ;;
esac

# Arguments are kept in the positional parameters from here on.
set -- -nodefaults -machine type=q35,graphics=off -accel tcg -cpu max -smp "$CPU_CORES" -m "$RAM_SIZE" \
  -display none -serial stdio -no-reboot -pidfile /run/qemu.pid
[ -z "$netdev" ] || set -- "$@" -netdev "$netdev" -device "virtio-net-pci,netdev=net0,romfile=,mac=$mac"

oem=/run/oem.cpio
if [ -d /storage ]; then
  oem=/storage/oem.cpio
  [ -e /storage/data.img ] || truncate -s "$DISK_SIZE" /storage/data.img
  set -- "$@" -drive file=/storage/data.img,format=raw,if=virtio
fi
if [ -d /oem ] && [ ! -e "$oem" ]; then
  (cd / && find oem | cpio -o -H newc 2>/dev/null) >"$oem.new"
  mv "$oem.new" "$oem"
  say 'installed what /oem holds'
fi
cat /vm/guest.cpio >/run/initrd
[ ! -e "$oem" ] || cat "$oem" >>/run/initrd
if grep -qs '^FIREWALL=drop' /oem/vm-test.conf; then cat /vm/firewall.cpio >>/run/initrd; fi

httpd -p 8006 -h /vm/web
say "network $mode, the guest's address is $guest"
# QEMU takes this process' place: it gets the SIGTERM, and its end is the container's
exec qemu-system-x86_64 "$@" -kernel /vm/vmlinuz -initrd /run/initrd -append \
  'console=ttyS0 quiet mitigations=off cryptomgr.notests nokaslr no_timer_check audit=0 panic=-1'
