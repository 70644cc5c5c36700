"""Where the experiments' data are, and where they come from."""

from pathlib import Path

__all__ = ["SOURCES", "find"]

SOURCES = {
    "london2017.csv": (
        "sales in Greater London in 2017, with the columns latitude, longitude, price, contract, "
        "new and type (1 for a flat): an extract of HM Land Registry's Price Paid Data "
        "(https://www.gov.uk/government/collections/price-paid-data, Open Government Licence), "
        "its addresses placed by postcode"
    ),
    "london_ppd_2015_2018.parquet": (
        "sales in Greater London from 2015 to 2018, with the columns latitude, longitude, year, "
        "price and new_build, from HM Land Registry's Price Paid Data "
        "(https://www.gov.uk/government/collections/price-paid-data)"
    ),
    "extrasensory_3users.parquet": (
        "three people's week of the ExtraSensory data (http://extrasensory.ucsd.edu, cite Vaizman, "
        "Ellis and Lanckriet 2017), a row per minute, with the columns user, t_days, at_home, "
        "loc_log_diameter, phone_in_hand and on_the_phone"
    ),
    "arrhythmia_p255.npz": (
        "UCI's arrhythmia data (https://archive.ics.uci.edu/dataset/5/arrhythmia) as arrays X "
        "(452 x 255), sex and age; scikit-learn can fetch it: pass --fetch"
    ),
}


def find(name: str, folder: Path | None) -> Path:
    """A data file in the folder of the experiments' data.

    Args:
        name: the name of the file, one of `SOURCES`.
        folder: the folder of the data; None if it was not given.
    """
    if folder is not None and (folder / name).is_file():
        return folder / name
    if folder is None:
        missing = f"{name} is needed, and no folder of data was named"
    elif folder.is_dir():
        missing = f"{name} is not in {folder}"
    else:
        missing = f"there is no folder {folder}"
    raise FileNotFoundError(
        f"{missing}: name one with --data or in the variable HETMOGP_DATA. {name} holds "
        f"{SOURCES[name]}"
    )
