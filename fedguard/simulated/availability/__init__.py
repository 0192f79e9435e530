"""Models of the availability of devices, and traces of real ones, one file each; the common interface is in
`fedguard.contracts.availability`.

always.py          always: nobody leaves
on_off.py          on_off: at random
day_and_night.py   day_and_night: some hours of each day
trace.py           trace: as a file says
"""

AVAILABILITIES = {
    "always": "fedguard.simulated.availability.always:FullAvailability",
    "on_off": "fedguard.simulated.availability.on_off:OnOff",
    "day_and_night": "fedguard.simulated.availability.day_and_night:DayAndNight",
    "trace": "fedguard.simulated.availability.trace:Trace",
}
