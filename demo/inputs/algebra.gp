\\ Number theory: factors, primes, class numbers.
s = 0;
for (i = 1, 40, s += #factorint(10^22 + i * 7919)~);
for (i = 1, 20000, s += sigma(i));
s += quadclassunit(-10^12 - 3).no;
print(s + #factor(x^24 - 1)~);
quit
