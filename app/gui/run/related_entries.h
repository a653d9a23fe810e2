// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <optional>

#include "app/gui/run/run_hub.h"

namespace kvlab {

// Does this entry change, read or name what is selected? `before` is the folded state in front of
// the entry. A block decides alone when it is selected together with a sequence.
bool entryConcerns(const CacheState& before,
                   const Event& event,
                   int entry,
                   const Selection& selection);

// Nearest entry at or behind `from` that concerns the selection; none when there is no further one.
std::optional<Cursor> nextRelatedEntry(const RunLog& log,
                                       const Selection& selection,
                                       Cursor from,
                                       const CacheState& state);
// Nearest entry that lies wholly before `from`.
std::optional<Cursor> previousRelatedEntry(const RunLog& log,
                                           const Selection& selection,
                                           Cursor from);

}  // namespace kvlab
