-- All ways to place N queens, by tables and closures.
local n, count = tonumber(arg[1]), 0
local columns, up, down = {}, {}, {}
local function place(row)
  if row > n then count = count + 1 return end
  for c = 1, n do
    if not (columns[c] or up[row + c] or down[row - c + n]) then
      columns[c], up[row + c], down[row - c + n] = true, true, true
      place(row + 1)
      columns[c], up[row + c], down[row - c + n] = nil, nil, nil
    end
  end
end
place(1)
local words = {}
for i = 1, 20000 do words[#words + 1] = string.format("%05d", (i * 7919) % 20011) end
table.sort(words)
print(count, table.concat(words, "", 1, 10))
