# Queens on a board, and words counted in a hash.
def place(n, row, columns, up, down)
  return 1 if row == n
  (0...n).sum do |c|
    next 0 if columns[c] || up[row + c] || down[row - c + n]
    columns[c] = up[row + c] = down[row - c + n] = true
    found = place(n, row + 1, columns, up, down)
    columns[c] = up[row + c] = down[row - c + n] = nil
    found
  end
end
puts place(ARGV[0].to_i, 0, [], [], [])
counts = Hash.new(0)
File.foreach(ARGV[1]) { |line| line.split.each { |word| counts[word] += 1 } }
puts counts.values.max
