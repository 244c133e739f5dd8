"""What is encoded is decoded: vectors and the text of their names."""

from uuid import UUID

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from liquidlog.spec.deletion_vectors import (
    decode_z85,
    deleted_positions,
    encode_z85,
    encoded_payload,
    framed_bytes,
    framed_payload,
    stored_vector,
    vector_codes,
    vector_file,
    vector_file_name,
    vector_path,
)
from support.deleted import positions

LAST = 2**40
rows = st.sets(st.integers(0, LAST), min_size=1, max_size=60)
runs = st.tuples(st.integers(0, LAST), st.integers(1, 70_000)).map(
    lambda run: set(range(run[0], min(run[0] + run[1], LAST + 1)))
)


@given(wanted=rows | runs, name=st.uuids())
def test_a_vector_is_read_as_it_is_written(wanted: set[int], name: UUID) -> None:
    gone = positions(wanted)
    payload = encoded_payload(gone)
    vector = stored_vector(name, payload, cardinality=len(gone))
    assert vector_path(vector) == vector_file_name(name)
    offset, length = framed_bytes(vector)
    content = vector_file(payload)[offset : offset + length]
    found = deleted_positions(
        framed_payload(vector, content), cardinality=vector.cardinality, num_rows=LAST + 1
    )
    assert np.array_equal(found, gone)


@given(content=st.binary(max_size=64).filter(lambda content: len(content) % 4 == 0))
def test_text_is_decoded_as_it_was_encoded(content: bytes) -> None:
    assert decode_z85(encode_z85(content)) == content


@given(name=st.uuids())
def test_the_code_of_a_name_is_the_end_of_its_path(name: UUID) -> None:
    path = vector_file_name(name)
    assert vector_codes([path]) == {encode_z85(name.bytes): path}
