"""Writes through Django's ORM until it is killed, and says on standard output what it committed and what is synced.

    writer.py DATABASE COUNT

A line `committed N` follows the commit of the N-th user; `synced N` says that `highwater_synced` answered for it.
"""

import os
import sys

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup()

from django.contrib.auth.models import Group, User  # noqa: E402  (models exist only after setup)
from django.db import connection, transaction  # noqa: E402

SYNCED_EVERY = 50


def synced(database: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT highwater_synced(%s, 20000)", [database])
        cursor.fetchone()


def write_one(number: int) -> None:
    """One commit: a user, now and then with a group, a change and a deletion in the same transaction."""
    with transaction.atomic():
        user = User.objects.create(username=f"user{number}", email=f"user{number}@shop.invalid", password="!")
        if number % 10 == 0:
            group = Group.objects.create(name=f"group{number}")
            user.groups.add(group)
            Group.objects.filter(name=f"group{number - 100}").delete()
            User.objects.filter(username=f"user{number - 5}").update(first_name=f"changed by {number}")


def main(database: str, count: int) -> None:
    for number in range(1, count + 1):
        write_one(number)
        print(f"committed {number}", flush=True)
        if number % SYNCED_EVERY == 0:
            synced(database)
            print(f"synced {number}", flush=True)


main(sys.argv[1], int(sys.argv[2]))
