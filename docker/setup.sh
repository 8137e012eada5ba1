#!/bin/sh
# Makes the user `sandbox` and its directories in the system whose root directory is $1 (specification 9.3). By hand, since not
# every base has `useradd`. Whoever has the number 1000 in the base, as somebody has in Ubuntu's, makes room.
set -eu
root=${1%/}
others=$(sed -n 's/^\([^:]*\):[^:]*:1000:.*/\1/p' "$root/etc/passwd" "$root/etc/group" | sort -u)
for file in passwd group shadow gshadow; do
    for name in sandbox $others; do
        [ ! -e "$root/etc/$file" ] || sed -i "/^$name:/d" "$root/etc/$file"
    done
done
echo 'sandbox:x:1000:1000::/home/sandbox:/bin/bash' >> "$root/etc/passwd"
echo 'sandbox:x:1000:' >> "$root/etc/group"
[ ! -e "$root/etc/shadow" ] || echo 'sandbox:!:19000:0:99999:7:::' >> "$root/etc/shadow"
mkdir -p "$root/home/sandbox" "$root/workspace"
chown 1000:1000 "$root/home/sandbox" "$root/workspace"
